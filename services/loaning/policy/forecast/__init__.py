"""How many servers inference will need: a quantile of its demand over the time for which servers are lent."""
