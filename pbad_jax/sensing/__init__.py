"""What a controller or a task reads of a state: places, Jacobians, sensors, contact."""
