"""Where the time of a step goes, how busy the instances are, and the sentence that says what to do about it."""
