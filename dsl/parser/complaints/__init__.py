"""What is wrong with a statement that cannot be read; loaded with the first such statement.

`order` asks one attempt after the other and takes the first answer: quotes and the beginning of
the statement come first, then brackets, then what only one statement has, then values, lists,
calls and labels, then words and signs of other languages, and last what `leftover` says of any
text. An attempt tells one habit; it stands in the module of what it is about, and its place in
`order` is in front of those that would speak of the same text less exactly.
"""
