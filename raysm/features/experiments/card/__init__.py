"""The live card of a job: what it is made of, how it is drawn, and the loop that draws it again."""
