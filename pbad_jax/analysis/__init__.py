"""What a derivative is worth: linearisation of a step, and checks against differences."""
