"""How long one caller waits while another attacks."""
