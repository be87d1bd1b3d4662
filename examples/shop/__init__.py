"""A web shop, with its tests: `app.py` is the application, `orders.py` what the web site calls, `test_shop.py` tests both."""
