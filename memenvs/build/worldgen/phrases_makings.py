"""What a document says of a work or a landmark: one sentence pattern a line."""

WORK_OPENERS = """
{N} is {a_form}.
{N} is {a_form} by {creator}.
{N} is {a_form} {out} in {year}.
{N} is {a_form} {made} by {creator}.
{N}, {a_form} by {creator}, was {out} in {year}.
{N} is {a_form} {set_in} {setting}.
{out} in {year}, {N} is {a_form}.
{N} is {a_form} dedicated to {dedicatee}.
"""
WORK_FACTS = """
{S} was {made} by {creator}.
The {maker} of {n} was {creator}.
{creator} {active} {s} in {count} months.
Its {maker}, {creator}, {active} it in {a_place}.
It is the work of {creator}.
{S} was {out} in {year}.
{S} dates from {year}.
{S} was {out} in {year}, after long delays.
In {year} {s} was {out}, to {reviews} reviews.
{creator} {active} {s}, and it was {out} in {year}.
{S} was published by {publisher}.
Its publisher was {publisher}.
{publisher} published {s} in an edition of {count} hundred copies.
The task of printing {n} fell to {publisher}, its publisher.
{S} is {set_in} {setting}.
Like many works of its time, {s} is {set_in} {setting}.
{S} is {set_in} {setting}, drawn with a local's eye for detail.
{S} is {set_in} {setting} and is well remembered there.
{S} is dedicated to {dedicatee}.
The dedication is to {dedicatee}.
{S} bears a dedication to {dedicatee}.
Its dedication, to {dedicatee}, caused some gossip at the time.
"""
WORK_COLOUR = """
Early critics called it {verdict}; later ones were kinder.
The manuscript turned up in {a_place}.
{S} has been compared to {a_simile}.
{a_tint} first edition is kept under glass.
{S} divides opinion and is rarely out of favour for long.
Its central image is {a_simile}, seen {count} times.
Students are still asked to write essays about its ending.
Schoolchildren learn parts of it by heart.
The mood is {manner} throughout, with flashes of humour.
{S} was revised {count} times before it satisfied anyone.
A second version, much shorter, was burned in {a_place}.
Admirers gather each {season} to discuss it over {food}.
{S} owes something to old tales of {legend}.
Collectors prize copies with the misprinted title.
Two passages were added late, at the request of an impatient editor.
{S} was read aloud in kitchens and railway carriages alike.
One episode turns on a quarrel over {clutter}.
A passage on {pastime} became a popular favourite.
{S} begins in {season} and ends a year later, almost where it began.
The opening line is often quoted and usually misremembered.
One passage, about {legend}, is sometimes printed alone.
"""
# Where a plain noun needs its own words: music and pictures have no first edition.
WORK_COLOUR_BY_NOUN = {
    "piece": """
The score turned up in {a_place}.
Early critics called it {verdict}; later ones were kinder.
{S} has been compared to {a_simile}.
The slow middle section is often played at funerals.
{S} opens with a long solo that players dread.
{S} was revised {count} times before it satisfied anyone.
The mood is {manner} throughout, with flashes of humour.
Orchestras tend to bring it out in {season}.
{S} was encored {count} times on its first night.
The closing bars quote an old song about {legend}.
""",
    "picture": """
{S} hung for many years in {a_place}.
Early critics called it {verdict}; later ones were kinder.
{S} has been compared to {a_simile}.
Cleaning revealed a strip of {tint} paint along the lower edge.
In one corner stands a figure holding {item}.
{S} survived a fire with only slight damage to the frame.
The mood is {manner}, and the light is that of {season}.
Forgeries are common and generally too {tint}.
{S} was sold {count} times before anyone cleaned it.
A faint sketch of {a_simile} can be seen on the back.
""",
}

LANDMARK_OPENERS = """
{N} is {a_noun} in {site}.
{N} is {a_noun} of {material} in {site}.
{N} is {a_noun} completed in {completed}.
{N} is {a_noun} designed by {architect}.
{N}, {a_noun} in {site}, was completed in {completed}.
"""
LANDMARK_FACTS = """
{S} stands in {site}.
{S} can be found in {site}, near the old market.
{S} is among the best-known sights of {site}.
It was put up in {site}, on land once used for grazing.
{S} was designed by {architect}.
Its architect was {architect}.
The plans for {n} were drawn by {architect}, its architect.
{architect} was the architect of {n}.
{S} was completed in {completed}.
Work on {n} was finished in {completed}.
The last stone was laid in {completed}, completing {s}.
In {completed}, after {count} years of work, {s} was completed.
{S} was designed by {architect} and completed in {completed}.
{S} is built of {material}.
The builders used {material}, carted in by {delivery}.
The main structure is of {material}.
{S} was built in {material}, against the advice of the council.
The cost of {n} was met by {patron}.
{S} was paid for by {patron}.
{patron} paid for {s}.
Money for {n} came from {patron}, which paid the whole cost.
"""
LANDMARK_COLOUR = """
A plaque by the entrance lists those who worked on it.
{S} is floodlit in {season} and much photographed.
{birds} have nested under the eaves for generations.
Guided tours start on the hour and end with {food}.
The view from the top takes in {terrain}.
Students climb {s} by night, though it is forbidden.
{S} was restored with {funds} after a storm.
The doors are painted {tint} every {count} years.
Local people set their watches by its bell.
An early plan for a taller {noun} was rejected as too costly.
{S} appears on stamps and biscuit tins.
Its cellars once stored {cargo} for the winter.
A small exhibition explains how the foundations were dug.
Couples meet by its steps on the first evening of {season}.
{S} was nearly sold for scrap and is now well cared for.
The caretaker lives on the premises with {pets}.
A time capsule sealed in the wall is thought to hold {clutter}.
Engravings of {n} were once sold at every fair.
Its narrow stairs have {count} landings and no handrail.
"""
# Nobody has a door on a bridge.
_SPAN_COLOUR = """
{S} is floodlit in {season} and much photographed.
{birds} nest among its arches.
{S} replaced a ferry that had sunk {count} times.
The parapet is worn smooth by generations of elbows.
Local people test their courage by walking along the parapet.
An early plan for a wider {noun} was rejected as too costly.
{S} appears on stamps and biscuit tins.
A toll of one coin was charged until nobody could be found to collect it.
{S} sways a little in high wind, which worries only visitors.
Anglers line the railings at dusk, hoping for {fish}.
A market for {cargo} was once held in its shadow.
{S} was closed for {count} months after a flood and reopened with music.
Painters know {n} for its reflection in still water.
"""
LANDMARK_COLOUR_BY_NOUN = {"bridge": _SPAN_COLOUR, "viaduct": _SPAN_COLOUR}
