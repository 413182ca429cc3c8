"""What a simulated world consists of and is asked, drawn from its seed."""
