"""Lists: filters, pages, and what a caller may see of them."""
