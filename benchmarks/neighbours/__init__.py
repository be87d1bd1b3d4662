"""What tasks that hang, or end their process, cost the tasks beside them."""
