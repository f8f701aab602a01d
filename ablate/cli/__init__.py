"""The command line: parser, options, commands, doctor."""
