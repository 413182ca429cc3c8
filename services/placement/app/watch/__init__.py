"""What a writer watches beside its cycles: its inputs, topic `nodes`, clocks and bounds."""
