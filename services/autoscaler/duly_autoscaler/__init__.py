"""The autoscaler: plans how many workers each pool has, and has drivers start and end them."""
