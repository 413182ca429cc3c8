"""May this job enter? Validity, tenant, and the limits that never change by themselves."""
