"""The places of one job: gang, topology request, quota, replicas."""
