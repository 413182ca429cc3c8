"""`fallow bench aryl`: loans, reclaims and elastic jobs of Lyra (Aryl), and what it was compared with, on one trace."""
