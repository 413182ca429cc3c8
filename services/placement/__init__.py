"""Where does it run? The only writer of decisions."""
