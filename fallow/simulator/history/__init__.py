"""What a whole run left behind, and the checker that judges it from outside."""
