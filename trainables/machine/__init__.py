"""Handle what depends on the machine: files, processes, devices and memory."""
