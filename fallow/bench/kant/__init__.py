"""`fallow bench kant`: placement policies on loads like Kant's."""
