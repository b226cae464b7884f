"""What a force is, and the laws along lengths: springs, dampers, dry friction, limits, actuators; wrenches, fluids."""
