"""What a service serves over HTTP: health, metrics, cursors."""
