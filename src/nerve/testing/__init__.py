"""What tests of workflows and of stores can use."""
