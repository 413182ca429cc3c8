"""How a command ends when it cannot do what it was asked, and what it says then."""
