"""What depends on the machine: files, processes, devices, memory."""
