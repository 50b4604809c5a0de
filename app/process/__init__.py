"""The program as a process: its signals, its lock beside other instances, its crash log."""
