"""Jobs as files hold them."""
