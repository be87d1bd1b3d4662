"""What keeps what callbacks start from outliving them."""
