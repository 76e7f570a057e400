"""What a finished trial shows beside its record: attention, examples, gradients."""
