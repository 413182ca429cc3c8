"""What tenants, operators and the cell file ask for."""
