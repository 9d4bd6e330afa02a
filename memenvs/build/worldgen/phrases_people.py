"""What a document says of a person: one sentence pattern a line; prose.py lists the fields."""

OPENERS = """
{N} {was} {a_profession} born in {birthplace} in {born}.
{N}, born in {birthplace} in {born}, {was} {a_profession}.
{N} {was} {a_profession} who was born in {birthplace}.
{N} {was} {a_profession} whose life began in {birthplace} in {born}.
Born in {born}, {N} {was} {a_profession} and a native of {birthplace}.
Born in {birthplace}, {N} {was} {a_profession} of {renown}.
{N} {was} {a_profession} of {renown}.
{N} {was} {a_profession}, born in the {season} of {born}.
{N} {was} {a_profession} trained at {school}.
{N}, {a_profession} of {renown}, was educated at {school}.
{N}, {a_profession}, was a pupil of {mentor}.
{N} {was} {a_profession} and the founder of {company}.
{N} {was} {a_profession} best known for {masterpiece}.
{N} {was} {a_profession} best known for the design of {design}.
{N} {was} {a_profession} long employed by {employer}.
"""

FACTS = """
{S} was born in {birthplace}.
{Ss} birthplace was {birthplace}, where the family kept {a_shop}.
{S} was born in {birthplace}, above {a_shop}.
{S} was born to a family of {trades} in {birthplace}.
A native of {birthplace}, {s} grew up among {trades}.
{S} was born in {born}.
{S} was born in the {season} of {born}, the {rank} of {count} children.
Parish records give {born} as the year of {ss} birth.
{S} was born on a {weather} night in {born}.
{S} was born in {birthplace} in {born}.
{S} was born in {birthplace} in the {season} of {born}.
{S} was born in {born} in {birthplace}, the {rank} of {count} children.
In {born} {s} was born in {birthplace}, to a family of {trades}.
{S} attended {school}.
{S} was educated at {school}, where {he} was {pupil}.
{S} won a scholarship to {school} and stayed for {count} years.
At {school}, {s} was {pupil}.
{Ss} schooling took place at {school}.
{S} studied at {school}, walking there each day with {a_companion}.
After lessons at home {s} was sent to {school}.
{S} spent many years with {employer}.
{S} was employed by {employer}, at first as {a_post}.
{S} worked for {employer} for {count} years.
{S} joined {employer} in {his} twenties and rose slowly from {a_post}.
Steady work with {employer} paid for {ss} other interests.
{S} studied under {mentor}.
{S} learned the essentials of {his} profession from {mentor}.
{S} was a pupil of {mentor}, whose advice {he} quoted for years.
{Ss} teacher was {mentor}, {a_manner} and demanding master.
Under the guidance of {mentor}, {s} learned to work slowly.
{S} was taught at {school} and later by {mentor}.
{S} attended {school} and afterwards studied under {mentor}.
{S} founded {company}.
{S} founded {company} with {funds}.
With {funds} {s} founded {company}.
{S} is remembered as the founder of {company}.
After {count} years of planning {s} founded {company}.
{Ss} best-known work is {masterpiece}.
{S} is best known for {masterpiece}.
Of all {ss} works, {masterpiece} is the best known.
{Ss} reputation rests chiefly on {masterpiece}, the best known of {his} works.
Critics agree that {masterpiece} is {ss} best-known work.
{Ss} best-known design is {design}.
{S} is best known for designing {design}.
Of all the plans {s} drew, those for {design} are the best known.
Visitors know {o} best for the design of {design}.
{S} played the {instrument}.
In the evenings {s} played the {instrument}.
{S} taught {himself} the {instrument} from {a_manual}.
{S} was a capable amateur on the {instrument}.
At home {s} played the {instrument}, to the despair of the neighbours.
{S} played the {instrument} in {a_band} for {count} years.
"""

COLOUR = """
{S} kept {pets} and wrote to friends about little else.
{S} was fond of {pastime} and seldom travelled without {item}.
Colleagues remembered {o} as {manner} in company and {manner2} at work.
{S} rose early, worked until noon and gave the afternoons to {pastime}.
{Ss} letters, many of them about {topic}, are {manner} and often funny.
{S} disliked {dislike} and said so whenever asked.
A drawer full of {ss} notes on {topic} was found in {a_place}.
{S} married late and raised {count} children in a house full of {clutter}.
Visitors found {o} surrounded by {clutter}.
{S} was said to be unable to pass {a_shop} without going in.
In conversation {s} preferred {topic} to any talk of {his} own success.
Neighbours recalled {ss} habit of walking at dusk with {item}.
{S} suffered from poor eyesight and learned to work by touch.
A fall from {a_height} left {o} with a slight limp.
{S} gave away most of what {he} earned, often to {trades}.
{Ss} handwriting was so small that readers used a lens.
For {count} years {s} refused to sit for a portrait.
{S} spoke slowly, smoked {a_pipe} and never hurried.
Long illness in childhood made {o} an eager reader of books on {topic}.
{S} carried {item} everywhere, even to weddings.
Friends teased {o} about {his} love of {pastime}.
{S} once crossed the mountains on foot to settle an argument about {topic}.
{S} slept badly and used the small hours for reading about {topic}.
Poor at arithmetic, {s} left all accounts to a patient sister.
{S} owned {count} identical coats and wore no others.
Children of the street knew {o} as a reliable source of {sweet}.
{S} distrusted banks and hid coins among {clutter}.
A long friendship with {trades} shaped {ss} views.
Each {season} {s} took the same room by the sea and worked there undisturbed.
{S} collected {clutter} and could talk of them for hours.
Sketches show {o} in a broad hat, holding {item}.
{S} answered every letter on the day it came.
Praise embarrassed {o}, and {he} changed the subject to {topic}.
{S} travelled widely on foot and filled {count} notebooks with remarks on {topic}.
"""
