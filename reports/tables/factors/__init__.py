"""What factors and parameters are worth: effects, Shapley attribution, importances."""
