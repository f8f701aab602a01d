"""What the `report:` section is made of: its parts, and what each kind of figure takes."""
