"""What the screen costs the answers, measured: `moe-chat bench screen`."""
