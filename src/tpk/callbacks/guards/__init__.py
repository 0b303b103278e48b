"""What watches over a training: it stops or mends one that goes wrong, or gets no better."""
