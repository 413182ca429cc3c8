"""Records to bytes and back."""
