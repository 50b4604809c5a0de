"""Bytes from the host tier to the device tier: sources, copies, bandwidth, device memory, staging."""
