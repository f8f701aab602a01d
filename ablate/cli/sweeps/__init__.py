"""Commands that show whole sweeps: reports, two side by side."""
