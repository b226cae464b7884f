"""What is simulated: joints, inertia, topology and arrays, states."""
