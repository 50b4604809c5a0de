"""A chat apart from its looks: questions and answers, versions, commands, the prompt's parts."""
