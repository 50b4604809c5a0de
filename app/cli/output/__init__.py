"""What commands print: text for a person, progress, reports and JSON."""
