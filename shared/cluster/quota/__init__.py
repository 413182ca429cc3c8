"""Who may use how much: the trees of quotas, and what they leave."""
