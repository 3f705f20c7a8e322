"""What every page of the operators' console shares."""
