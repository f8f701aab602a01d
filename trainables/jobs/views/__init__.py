"""What figures of a trained model are drawn from: read once, into the trial's folder."""
