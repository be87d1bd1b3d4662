create table if not exists orders (id bigint generated always as identity primary key, item text not null);
