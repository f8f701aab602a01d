"""What a job needs on the node that it has come to, which may share nothing with the driver's."""
