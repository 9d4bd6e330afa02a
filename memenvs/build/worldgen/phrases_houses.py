"""What a document says of a company or a school: one sentence pattern a line."""

COMPANY_OPENERS = """
{N} is a company that makes {product}.
{N} is a maker of {product} based in {headquarters}.
{N}, founded in {founded}, is a maker of {product}.
{N} is a company founded by {founder}.
{N} is a company based in {headquarters}.
{N} is a company founded in {founded} by {founder}.
{N} is a producer of {product}, with headquarters in {headquarters}.
"""
COMPANY_FACTS = """
{S} was founded by {founder}.
Its founder was {founder}, who kept the first accounts in {a_notebook}.
The founder of {n} was {founder}.
{founder} founded {s} with {funds}.
{S} was founded in {founded}.
Its first office opened in {founded}, the year of its founding.
The founding of {n} dates from {founded}.
{S} was founded in {founded} by {founder}.
{founder} founded {s} in {founded}, with {count} employees.
{Ss} headquarters are in {headquarters}.
{S} is based in {headquarters}.
The head office stands in {headquarters}, beside {a_shop}.
From its headquarters in {headquarters}, {s} serves customers across the country.
{S} makes {product}.
{S} is known for its {product}.
The business of {n} is the production of {product}.
Its catalogues offer {product} of every kind.
From the first, {s} has produced {product}.
{S} is owned by {parent}.
A majority of the shares belongs to {parent}, its owner.
The owner of {n} is {parent}.
{S} was bought by {parent}, which still owns it.
"""
COMPANY_COLOUR = """
Apprentices serve {count} years and leave with {a_manual} of their own.
Its trademark, {a_tint} star, has hardly changed.
A fire destroyed the {season} stock but spared the tools.
{S} has a name for {service} service and slow delivery.
Staff are given {food} on the anniversary of the firm.
The works whistle can be heard across the valley.
Early advertisements, printed in {tint} ink, are sought by collectors.
{S} publishes an illustrated catalogue every {season}.
Orders were once delivered by {delivery}.
Several generations of the same families have worked there.
The showroom is decorated with {clutter}.
{S} nearly failed in a {weather} winter and was saved by a single order.
An in-house choir performs at the {season} dinner.
Visitors are offered {food} and a tour of the workshops.
{S} owes its survival to careful accounts and loyal customers.
Every new employee is handed {a_tint} apron.
A strike over tea breaks lasted {count} weeks and ended in laughter.
{S} keeps a cat on the payroll to protect the stores.
Its travelling salesmen were known for {service} manners and {tint} hats.
Samples are stored in {a_place} and shown only on request.
Deliveries still leave the yard before dawn.
{S} has never changed its letterhead.
"""

SCHOOL_OPENERS = """
{N} is a school in {campus}.
{N} is a school founded in {opened}.
{N} is a school in {campus} that opened in {opened}.
{N}, opened in {opened}, is a school for {count} hundred pupils.
{N} is {a_tempo} school whose badge shows {a_badge}.
"""
SCHOOL_FACTS = """
{S} stands in {campus}.
{S} occupies a cluster of buildings in {campus}.
Its home is {campus}, a short walk from the market.
The grounds lie in {campus}, behind a row of {trees}.
{S} opened in {opened}.
{S} was founded in {opened}.
Its doors first opened in {opened}, to {count} pupils.
Lessons began in {opened}, the year of its founding.
The head of {n} is {head}.
{S} is headed by {head}.
{head} is the head.
Its present head, {head}, teaches one class a week.
Its badge shows {a_badge}.
The badge of {n} is {a_badge}.
{a_badge} appears on the badge of {n}.
Pupils wear {a_badge} as their badge.
"""
SCHOOL_COLOUR = """
The library is housed in {a_place} and smells of {scent}.
Pupils rise early and spend an hour a day on {subject}.
A bell recovered from a wreck marks the end of lessons.
{S} is known for its choir and for its draughty dormitories.
Every {season} the youngest class plants {trees}.
The kitchens are famous for {food}.
Former pupils return each {season} for a cricket match.
Its examinations in {subject} are feared throughout the country.
The uniform is {tint} and has never been popular.
A long corridor is lined with portraits of stern governors.
Until recently the classrooms were heated by stoves.
{S} owns a collection of {clutter} left by a grateful parent.
Discipline was once severe, and the diaries of the period say so.
{S} publishes a magazine of verse and {subject} puzzles.
An annual walk of {count} hours ends with {food} for everyone.
Its rowing team has lost {count} finals in a row.
A tame jackdaw is said to have attended lessons for a year.
{S} admits pupils by interview and pays little heed to marks.
The oldest classroom still has its sloping desks and inkwells.
A prize for {subject} is awarded each {season}.
The roof of the great hall leaks and is mended every {season}.
{S} is proud of its orchestra, less so of its plumbing.
"""
