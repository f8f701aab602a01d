"""Search spaces, their branches, and what proposes points of them."""
