"""From a model's name to its files: where they are, what their headers and config say, what identifies them."""
