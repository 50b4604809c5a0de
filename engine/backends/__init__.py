"""Back ends, one folder each, and the offloaded model that is built on one."""
