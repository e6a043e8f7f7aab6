"""What is wrong with a statement that cannot be read; loaded with the first such statement.

`order` asks one attempt after the other and takes the first answer: first quotes, then the table of
`habits`, which are told exactly, then the beginning of the statement and brackets, then the table
of `patterns`, then values, lists, calls and labels, then words and signs of other languages, and
last what `leftover` says of any text.

A new habit that a pattern alone can tell is a row of `habits` if the pattern is that of a whole
phrase, of `patterns` if others must have looked before. Any other is an attempt: a
function in the module of what it is about, and a line in `order`, in front of those that would
speak of the same text less exactly. Either gets a text in tests/dsl/wrong.
"""
